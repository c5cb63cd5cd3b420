-- +goose Up

-- Authorizations of tokens (EIP-3009) that pay orders: each pays one order, and is in the transaction that records it. nonce is
-- that of the payer at the token. value are base units, the times Unix seconds, signature r, s and v.
CREATE TABLE authorizations (
    chain_id     BIGINT    NOT NULL,
    asset        {{TEXT}}  NOT NULL,
    payer        {{TEXT}}  NOT NULL,
    nonce        {{BYTES}} NOT NULL,
    order_id     {{TEXT}}  NOT NULL,
    receiver     {{TEXT}}  NOT NULL,
    value        TEXT      NOT NULL,
    valid_after  BIGINT    NOT NULL,
    valid_before BIGINT    NOT NULL,
    signature    {{BYTES}} NOT NULL,
    created_at   BIGINT    NOT NULL,
    PRIMARY KEY (chain_id, asset, payer, nonce)
){{ROWID}};
CREATE UNIQUE INDEX authorizations_order ON authorizations (order_id);
