-- +goose Up
-- online: earlier releases neither read nor write these columns, and NULL is their zero value.

-- Of a payment without an order: the cents that were refunded, those that disputes withdrew and did not return, and when the
-- processor was asked for both. delegation_id is the delegation that its metadata names, and counted_cents what that counts as
-- paid for it.
ALTER TABLE card_orphans ADD COLUMN refunded_cents BIGINT;
ALTER TABLE card_orphans ADD COLUMN disputed_cents BIGINT;
ALTER TABLE card_orphans ADD COLUMN read_at BIGINT;
ALTER TABLE card_orphans ADD COLUMN delegation_id {{TEXT}};
ALTER TABLE card_orphans ADD COLUMN counted_cents BIGINT;
