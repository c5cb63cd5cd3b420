-- +goose Up

-- What was settled, counted from the journal up to the cursor 'usage'. hour and day are their first microsecond (UTC). Sums of credits
-- are kept in two parts, the sum of the upper and that of the lower 32 bits, as they may exceed a BIGINT. agent_id is '' for none, owner
-- '' for a plan without a record. took_0 to took_11 count settlements by the time from hold to settlement.
CREATE TABLE usage_hours (
    plan_id      {{TEXT}} NOT NULL,
    hour         BIGINT   NOT NULL,
    agent_id     {{TEXT}} NOT NULL,
    owner        {{TEXT}} NOT NULL,
    settled      BIGINT   NOT NULL,
    credits_high BIGINT   NOT NULL,
    credits_low  BIGINT   NOT NULL,
    took_0       BIGINT   NOT NULL,
    took_1       BIGINT   NOT NULL,
    took_2       BIGINT   NOT NULL,
    took_3       BIGINT   NOT NULL,
    took_4       BIGINT   NOT NULL,
    took_5       BIGINT   NOT NULL,
    took_6       BIGINT   NOT NULL,
    took_7       BIGINT   NOT NULL,
    took_8       BIGINT   NOT NULL,
    took_9       BIGINT   NOT NULL,
    took_10      BIGINT   NOT NULL,
    took_11      BIGINT   NOT NULL,
    PRIMARY KEY (plan_id, hour, agent_id)
){{ROOM}}{{ROWID}};
CREATE INDEX usage_hours_owner ON usage_hours (owner, hour);

-- The same by subscriber and day.
CREATE TABLE usage_days (
    plan_id      {{TEXT}} NOT NULL,
    day          BIGINT   NOT NULL,
    subscriber   {{TEXT}} NOT NULL,
    settled      BIGINT   NOT NULL,
    credits_high BIGINT   NOT NULL,
    credits_low  BIGINT   NOT NULL,
    last_at      BIGINT   NOT NULL,
    PRIMARY KEY (plan_id, day, subscriber)
){{ROOM}}{{ROWID}};
CREATE INDEX usage_days_subscriber ON usage_days (subscriber, day);

-- What was paid for orders, by the hour in which they were made. amount is a decimal number of base units, which may exceed a BIGINT.
CREATE TABLE revenue_hours (
    plan_id  {{TEXT}} NOT NULL,
    hour     BIGINT   NOT NULL,
    currency {{TEXT}} NOT NULL,
    owner    {{TEXT}} NOT NULL,
    orders   BIGINT   NOT NULL,
    amount   {{TEXT}} NOT NULL,
    PRIMARY KEY (plan_id, hour, currency)
){{ROOM}}{{ROWID}};
CREATE INDEX revenue_hours_owner ON revenue_hours (owner, hour);

-- Orders whose money went back, which are few.
CREATE INDEX orders_returned ON orders (seller, created_at) WHERE refunded_cents > 0 OR reversed = 1 OR dispute IS NOT NULL;

INSERT INTO journal_cursors (name, pos) VALUES ('usage', 0);
