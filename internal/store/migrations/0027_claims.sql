-- +goose Up

-- Claims: holds that ran out and may still be settled. A permission keeps 64 of them at most.
CREATE INDEX requests_claims ON requests (account_id, permission_hash, hold_ends_at) WHERE state = 4;
UPDATE requests SET state = 5 WHERE state = 4 AND (account_id, agent_request_id) IN (
    SELECT account_id, agent_request_id FROM (
        SELECT account_id, agent_request_id, ROW_NUMBER() OVER (
            PARTITION BY account_id, permission_hash ORDER BY hold_ends_at DESC, agent_request_id DESC) AS place
        FROM requests WHERE state = 4) AS claims
    WHERE place > 64);
