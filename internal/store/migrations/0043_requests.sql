-- +goose Up

-- Requests that are settled are in the journal by now. The table has the others, and no column that only they had.
CREATE TABLE requests_left AS SELECT * FROM requests WHERE state <> 2;
DROP TABLE requests;
CREATE TABLE requests (
    account_id       {{BYTES}} NOT NULL,
    agent_request_id {{TEXT}}  NOT NULL,
    state            BIGINT    NOT NULL,
    permission_hash  {{BYTES}} NOT NULL,
    agent_id         TEXT      NOT NULL,
    resource         TEXT      NOT NULL,
    held             BIGINT    NOT NULL CHECK (held >= 0),
    hold_ends_at     BIGINT    NOT NULL,
    created_at       BIGINT    NOT NULL,
    ended_at         BIGINT    NOT NULL,
    order_tx         TEXT      NOT NULL,
    PRIMARY KEY (agent_request_id, account_id)
){{PARTITION}};
INSERT INTO requests SELECT account_id, agent_request_id, state, permission_hash, agent_id, resource, held, hold_ends_at, created_at,
    ended_at, {{ANSWER}} FROM requests_left;
DROP TABLE requests_left;
CREATE INDEX requests_open ON requests (account_id, hold_ends_at) WHERE state = 1;
CREATE INDEX requests_claims ON requests (account_id, permission_hash, hold_ends_at) WHERE state = 4;
DROP TABLE entries;

UPDATE accounts SET low_mark = COALESCE((SELECT l.granted FROM lots l
    WHERE l.account_id = accounts.account_id AND l.lot_id > 0 ORDER BY l.lot_id DESC LIMIT 1), 0) / 10;

-- The mirror starts before the first burn that is in no period.
UPDATE journal_cursors SET pos = COALESCE((SELECT MIN(j.pos) - 1 FROM journal j JOIN accounts a ON a.account_id = j.account_id
        JOIN plans p ON p.plan_id = a.plan_id LEFT JOIN mirror_cursors c ON c.account_id = j.account_id
        WHERE j.kind = 2 AND j.seq > COALESCE(c.seq, 0) AND p.mirrored IS NOT FALSE),
    (SELECT COALESCE(MAX(pos), 0) FROM journal)) WHERE name = 'mirror';
DROP TABLE mirror_cursors;

-- Events follow the journal.
DROP TABLE event_cursors;
