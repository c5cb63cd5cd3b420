-- +goose Up
-- online: earlier releases have no card rail. They neither read these tables nor write these columns, and NULL is their zero value.

-- What an order lost again: cents and credits that were given back, and its dispute: NULL, 'open', 'won' or 'lost'. replaces is
-- the failed order in whose place a person was to pay this one.
ALTER TABLE orders ADD COLUMN refunded_cents BIGINT;
ALTER TABLE orders ADD COLUMN refunded_credits BIGINT;
ALTER TABLE orders ADD COLUMN dispute TEXT;
ALTER TABLE orders ADD COLUMN replaces {{TEXT}};

-- A frozen delegation pays nothing. frozen_for is why: 'declines' or 'dispute'. declines counts those in a row.
ALTER TABLE delegations ADD COLUMN frozen_at BIGINT;
ALTER TABLE delegations ADD COLUMN frozen_for TEXT;
ALTER TABLE delegations ADD COLUMN declines BIGINT;

-- When the processor said that a card is past its date.
ALTER TABLE payment_methods ADD COLUMN expired_at BIGINT;

-- The customer of a principal at the processor. row_id is the idempotency key with which it is made.
CREATE TABLE card_customers (
    owner       {{TEXT}} NOT NULL,
    row_id      {{TEXT}} NOT NULL,
    customer_id {{TEXT}},
    created_at  BIGINT   NOT NULL,
    PRIMARY KEY (owner)
){{ROWID}};
CREATE UNIQUE INDEX card_customers_id ON card_customers (customer_id) WHERE customer_id IS NOT NULL;

-- Enrolments of cards, which also count for the limit of T84. source is a hash of the address that asked. method_id is the record
-- of the card that was enrolled, NULL before.
CREATE TABLE card_setups (
    setup_id   {{TEXT}} NOT NULL,
    owner      {{TEXT}} NOT NULL,
    source     {{TEXT}} NOT NULL,
    state      TEXT     NOT NULL,
    session_id {{TEXT}},
    intent_id  {{TEXT}},
    method_id  {{TEXT}},
    failures   BIGINT   NOT NULL,
    created_at BIGINT   NOT NULL,
    expires_at BIGINT   NOT NULL,
    PRIMARY KEY (setup_id)
){{ROWID}};
CREATE INDEX card_setups_owner ON card_setups (owner, created_at);
CREATE INDEX card_setups_source ON card_setups (source, created_at);
CREATE INDEX card_setups_created ON card_setups (created_at);
CREATE UNIQUE INDEX card_setups_session ON card_setups (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX card_setups_intent ON card_setups (intent_id) WHERE intent_id IS NOT NULL;

-- What is behind an enrolled card: stripe_id is the payment method that is charged now, while method_id, the id of the record in
-- payment_methods, never changes. fingerprint is NULL once the card was removed.
CREATE TABLE card_methods (
    owner       {{TEXT}} NOT NULL,
    method_id   {{TEXT}} NOT NULL,
    stripe_id   {{TEXT}} NOT NULL,
    customer_id {{TEXT}} NOT NULL,
    fingerprint {{TEXT}},
    checked_at  BIGINT   NOT NULL,
    PRIMARY KEY (owner, method_id)
){{ROWID}};
CREATE INDEX card_methods_id ON card_methods (method_id);
CREATE UNIQUE INDEX card_methods_stripe ON card_methods (stripe_id);
CREATE UNIQUE INDEX card_methods_same ON card_methods (owner, fingerprint) WHERE fingerprint IS NOT NULL;

-- The payment of an order, under its id. seller owns the plan, payer buys. version counts the writes. customer_id, method_id and
-- delegation_id are NULL when a person pays. undecided: its order has yet to take what became of it. data is JSON.
CREATE TABLE card_payments (
    order_id      {{TEXT}}  NOT NULL,
    order_account {{BYTES}} NOT NULL,
    seller        {{TEXT}}  NOT NULL,
    payer         {{TEXT}}  NOT NULL,
    state         TEXT      NOT NULL,
    version       BIGINT    NOT NULL,
    attempt       BIGINT    NOT NULL,
    cents         BIGINT    NOT NULL CHECK (cents > 0),
    currency      TEXT      NOT NULL,
    customer_id   {{TEXT}},
    method_id     {{TEXT}},
    delegation_id {{TEXT}},
    session_id    {{TEXT}},
    intent_id     {{TEXT}},
    charge_id     {{TEXT}},
    undecided     BOOLEAN   NOT NULL,
    created_at    BIGINT    NOT NULL,
    updated_at    BIGINT    NOT NULL,
    paid_at       BIGINT    NOT NULL,
    data          TEXT      NOT NULL,
    PRIMARY KEY (order_id)
){{ROWID}};
CREATE UNIQUE INDEX card_payments_session ON card_payments (session_id) WHERE session_id IS NOT NULL;
CREATE UNIQUE INDEX card_payments_intent ON card_payments (intent_id) WHERE intent_id IS NOT NULL;
CREATE INDEX card_payments_failed ON card_payments (payer, created_at) WHERE state = 'failed';

-- Requests that change something at the processor, each stored before it is sent. call_key is its idempotency key, and params
-- are the exact bytes; they are emptied once the answer is known. status is 0 until then.
CREATE TABLE card_calls (
    call_key    {{TEXT}} NOT NULL,
    subject     {{TEXT}} NOT NULL,
    path        TEXT     NOT NULL,
    params      TEXT     NOT NULL,
    status      BIGINT   NOT NULL,
    object_id   TEXT     NOT NULL,
    created_at  BIGINT   NOT NULL,
    answered_at BIGINT   NOT NULL,
    PRIMARY KEY (call_key)
){{ROWID}};
CREATE INDEX card_calls_answered ON card_calls (answered_at);

-- Money that goes back. origin is 'seller' (refund_id is the idempotency key), 'processor', or 'rejected' for money that bought
-- nothing. stripe_id is NULL until the processor has made it.
CREATE TABLE card_refunds (
    refund_id     {{TEXT}}  NOT NULL,
    order_id      {{TEXT}}  NOT NULL,
    order_account {{BYTES}} NOT NULL,
    origin        TEXT      NOT NULL,
    state         TEXT      NOT NULL,
    cents         BIGINT    NOT NULL CHECK (cents > 0),
    intent_id     {{TEXT}}  NOT NULL,
    stripe_id     {{TEXT}},
    reason        TEXT      NOT NULL,
    created_at    BIGINT    NOT NULL,
    updated_at    BIGINT    NOT NULL,
    PRIMARY KEY (refund_id)
){{ROWID}};
CREATE INDEX card_refunds_order ON card_refunds (order_id);
CREATE UNIQUE INDEX card_refunds_stripe ON card_refunds (stripe_id) WHERE stripe_id IS NOT NULL;

-- Disputes and inquiries. withdrawn: the money has left the account of the operator and has not come back.
CREATE TABLE card_disputes (
    dispute_id    {{TEXT}}  NOT NULL,
    order_id      {{TEXT}}  NOT NULL,
    order_account {{BYTES}} NOT NULL,
    state         TEXT      NOT NULL,
    cents         BIGINT    NOT NULL,
    reason        TEXT      NOT NULL,
    withdrawn     BOOLEAN   NOT NULL,
    due_at        BIGINT    NOT NULL,
    created_at    BIGINT    NOT NULL,
    updated_at    BIGINT    NOT NULL,
    PRIMARY KEY (dispute_id)
){{ROWID}};
CREATE INDEX card_disputes_order ON card_disputes (order_id);

-- What moved the balance of the operator at the processor, one row a balance transaction. It never changes.
CREATE TABLE card_moves (
    move_id  {{TEXT}} NOT NULL,
    order_id {{TEXT}} NOT NULL,
    kind     TEXT     NOT NULL,
    cents    BIGINT   NOT NULL,
    fee      BIGINT   NOT NULL,
    currency TEXT     NOT NULL,
    at       BIGINT   NOT NULL,
    PRIMARY KEY (move_id)
){{ROWID}};
CREATE INDEX card_moves_order ON card_moves (order_id);
CREATE INDEX card_moves_at ON card_moves (at);

-- Events of the processor that were taken, so that each is worked on once. They are kept as long as the processor lists them.
CREATE TABLE card_events (
    event_id   {{TEXT}} NOT NULL,
    type       TEXT     NOT NULL,
    object_id  TEXT     NOT NULL,
    created_at BIGINT   NOT NULL,
    PRIMARY KEY (event_id)
){{ROWID}};
CREATE INDEX card_events_created ON card_events (created_at);

-- Money at the processor that no order explains (I13). order_id is what the object claims. resolved_at is 0 until an operator
-- has dealt with it.
CREATE TABLE card_orphans (
    object_id   {{TEXT}} NOT NULL,
    order_id    TEXT     NOT NULL,
    cents       BIGINT   NOT NULL,
    currency    TEXT     NOT NULL,
    reason      TEXT     NOT NULL,
    seen_at     BIGINT   NOT NULL,
    resolved_at BIGINT   NOT NULL,
    PRIMARY KEY (object_id)
){{ROWID}};

-- What the operator paid to sellers by other means. month is YYYY-MM.
CREATE TABLE card_payouts (
    payout_id {{TEXT}} NOT NULL,
    seller    {{TEXT}} NOT NULL,
    month     TEXT     NOT NULL,
    currency  TEXT     NOT NULL,
    cents     BIGINT   NOT NULL,
    note      TEXT     NOT NULL,
    paid_at   BIGINT   NOT NULL,
    PRIMARY KEY (payout_id)
){{ROWID}};
CREATE INDEX card_payouts_seller ON card_payouts (seller, month);
