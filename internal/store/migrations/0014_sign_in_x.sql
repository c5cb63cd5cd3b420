-- +goose Up

-- Nonces of sign-ins by wallets that were used. A row is needed for as long as the nonce would be taken.
CREATE TABLE wallet_nonces (
    nonce   {{BYTES}} NOT NULL,
    ends_at BIGINT    NOT NULL,
    PRIMARY KEY (nonce)
){{ROWID}};
CREATE INDEX wallet_nonces_end ON wallet_nonces (ends_at);

-- Names that wallets gave to their purchases. content is the SHA-256 of what was bought, and for how much.
CREATE TABLE sale_identifiers (
    subscriber {{TEXT}}  NOT NULL,
    identifier {{TEXT}}  NOT NULL,
    content    {{BYTES}} NOT NULL,
    order_id   {{TEXT}}  NOT NULL,
    PRIMARY KEY (subscriber, identifier)
){{ROWID}};

-- Receipts of purchases as they were first answered.
CREATE TABLE sale_receipts (
    order_id {{TEXT}}  NOT NULL,
    receipt  {{BYTES}} NOT NULL,
    PRIMARY KEY (order_id)
){{ROWID}};
