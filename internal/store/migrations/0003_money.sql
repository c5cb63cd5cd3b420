-- +goose Up

-- The columns are NULL for orders that are older than they are, which were all free. open_key is NULL once an order is
-- finished: an account has at most one open order of each key. rail is what pays it. cents is what it takes of its
-- delegation. session is JSON of the page on which a person pays. try_at says when it is to be looked at while it is open.
ALTER TABLE orders ADD COLUMN open_key {{TEXT}};
ALTER TABLE orders ADD COLUMN rail TEXT;
ALTER TABLE orders ADD COLUMN delegation_id TEXT;
ALTER TABLE orders ADD COLUMN cents BIGINT;
ALTER TABLE orders ADD COLUMN permission_hash {{BYTES}};
ALTER TABLE orders ADD COLUMN request_id {{TEXT}};
ALTER TABLE orders ADD COLUMN session TEXT;
ALTER TABLE orders ADD COLUMN failure_code TEXT;
ALTER TABLE orders ADD COLUMN failure_params TEXT;
ALTER TABLE orders ADD COLUMN try_at BIGINT;
ALTER TABLE orders ADD COLUMN tries BIGINT;
CREATE UNIQUE INDEX orders_open ON orders (account_id, open_key) WHERE open_key IS NOT NULL;
CREATE INDEX orders_due ON orders (try_at) WHERE open_key IS NOT NULL;
CREATE INDEX orders_request ON orders (account_id, request_id) WHERE request_id IS NOT NULL;

-- A limit on money. spent is what was paid, reserved what orders under way will take; transactions counts both.
-- max_transactions is 0 for no limit, plan_id and api_key_id are '' for any. revoking is true while permissions that name
-- the revoked delegation may still have to be revoked.
CREATE TABLE delegations (
    delegation_id      {{TEXT}} NOT NULL,
    owner              {{TEXT}} NOT NULL,
    provider           TEXT     NOT NULL,
    payment_method_id  {{TEXT}} NOT NULL,
    currency           TEXT     NOT NULL,
    limit_cents        BIGINT   NOT NULL CHECK (limit_cents > 0),
    spent_cents        BIGINT   NOT NULL CHECK (spent_cents >= 0),
    reserved_cents     BIGINT   NOT NULL CHECK (reserved_cents >= 0),
    transactions       BIGINT   NOT NULL CHECK (transactions >= 0),
    max_transactions   BIGINT   NOT NULL CHECK (max_transactions >= 0),
    plan_id            TEXT     NOT NULL,
    api_key_id         TEXT     NOT NULL,
    merchant_account   TEXT     NOT NULL,
    allowed_recipients TEXT     NOT NULL,
    created_at         BIGINT   NOT NULL,
    expires_at         BIGINT   NOT NULL,
    revoked_at         BIGINT   NOT NULL,
    last_used_at       BIGINT   NOT NULL,
    revoking           BOOLEAN  NOT NULL,
    PRIMARY KEY (delegation_id),
    CHECK (spent_cents + reserved_cents <= limit_cents)
){{ROWID}};
CREATE INDEX delegations_owner ON delegations (owner, created_at, delegation_id);
CREATE INDEX delegations_method ON delegations (owner, payment_method_id);
CREATE INDEX delegations_revoking ON delegations (delegation_id) WHERE revoking;

CREATE TABLE delegation_transactions (
    delegation_id  {{TEXT}} NOT NULL,
    id             {{TEXT}} NOT NULL,
    order_id       {{TEXT}} NOT NULL,
    provider_id    TEXT     NOT NULL,
    cents          BIGINT   NOT NULL CHECK (cents >= 0),
    currency       TEXT     NOT NULL,
    status         TEXT     NOT NULL,
    failure_reason TEXT     NOT NULL,
    created_at     BIGINT   NOT NULL,
    PRIMARY KEY (delegation_id, id)
){{ROWID}};
CREATE UNIQUE INDEX delegation_transactions_order ON delegation_transactions (order_id);
CREATE INDEX delegation_transactions_created ON delegation_transactions (delegation_id, created_at, id);

-- Cards, and what was noted of wallets: id is the address then. allowed_keys is a JSON array of key ids, '' for every key.
CREATE TABLE payment_methods (
    owner        {{TEXT}} NOT NULL,
    id           {{TEXT}} NOT NULL,
    provider     TEXT     NOT NULL,
    brand        TEXT     NOT NULL,
    last4        TEXT     NOT NULL,
    exp_month    BIGINT   NOT NULL,
    exp_year     BIGINT   NOT NULL,
    alias        TEXT,
    allowed_keys TEXT     NOT NULL,
    created_at   BIGINT   NOT NULL,
    revoked_at   BIGINT   NOT NULL,
    PRIMARY KEY (owner, id)
){{ROWID}};
