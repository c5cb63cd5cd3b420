-- +goose Up

-- Whose request a released or lapsed one is: the owner of its plan, and the subscriber. They are NULL while it is held, so that holds
-- and settlements write to neither index.
ALTER TABLE requests ADD COLUMN seller {{TEXT}};
ALTER TABLE requests ADD COLUMN subscriber {{TEXT}};
UPDATE requests SET
    seller = (SELECT p.owner FROM accounts a JOIN plans p ON p.plan_id = a.plan_id WHERE a.account_id = requests.account_id),
    subscriber = (SELECT a.subscriber FROM accounts a WHERE a.account_id = requests.account_id)
    WHERE state <> 1;
CREATE INDEX requests_seller ON requests (seller, ended_at, account_id, agent_request_id) WHERE seller IS NOT NULL;
CREATE INDEX requests_subscriber ON requests (subscriber, ended_at, account_id, agent_request_id) WHERE subscriber IS NOT NULL;
