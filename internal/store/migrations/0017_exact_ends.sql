-- +goose Up

-- When the authorization of a payment ends: its answer is not asked for long after that.
ALTER TABLE exact_payments ADD COLUMN ends_at BIGINT;
UPDATE exact_payments SET ends_at = (SELECT a.valid_before * 1000000 FROM authorizations a WHERE a.order_id = payment_id);
CREATE INDEX exact_payments_end ON exact_payments (ends_at);
