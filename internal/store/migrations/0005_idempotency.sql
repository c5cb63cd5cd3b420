-- +goose Up

-- What was answered to a creating call that named an Idempotency-Key, written in the transaction that created. scope is
-- the SHA-256 of caller, operation, path and key; body that of the request. answer is sealed: it may hold a secret that is
-- shown once.
CREATE TABLE idempotency_keys (
    scope      {{BYTES}} NOT NULL,
    body       {{BYTES}} NOT NULL,
    answer     {{BYTES}} NOT NULL,
    created_at BIGINT    NOT NULL,
    PRIMARY KEY (scope)
){{ROWID}};
CREATE INDEX idempotency_keys_created ON idempotency_keys (created_at);

-- Rights beyond a principal's own records, such as moving the test clock. NULL is no.
ALTER TABLE principals ADD COLUMN is_operator BOOLEAN;
