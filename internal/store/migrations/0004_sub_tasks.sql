-- +goose Up

-- What the work for a request cost, as its builder records it. Nothing burns because of a row.
CREATE TABLE sub_tasks (
    account_id       {{BYTES}} NOT NULL,
    agent_request_id {{TEXT}}  NOT NULL,
    sub_task_id      {{TEXT}}  NOT NULL,
    credits          BIGINT    NOT NULL CHECK (credits >= 0),
    tag              TEXT      NOT NULL,
    description      TEXT      NOT NULL,
    status           TEXT      NOT NULL,
    metadata         TEXT      NOT NULL,
    created_at       BIGINT    NOT NULL,
    PRIMARY KEY (account_id, agent_request_id, created_at, sub_task_id)
){{PARTITION}}{{ROWID}};
