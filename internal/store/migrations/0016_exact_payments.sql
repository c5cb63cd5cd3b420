-- +goose Up

-- Payments of scheme exact that other servers had verified or settled here. payment_id is the order of its authorization, server
-- the caller, content the SHA-256 of what was asked for. opened says that a verify came first; answer is that to the settle.
CREATE TABLE exact_payments (
    payment_id {{TEXT}}  NOT NULL,
    server     {{TEXT}}  NOT NULL,
    content    {{BYTES}} NOT NULL,
    opened     BOOLEAN   NOT NULL,
    answer     {{BYTES}},
    PRIMARY KEY (payment_id)
){{ROWID}};
