-- +goose Up
-- online: earlier releases neither read nor write these columns, and NULL is their zero value.

-- What a payment without an order says of itself, and what an operator did about it: NULL while nothing was done,
-- 'granted', 'refunding', 'refunded' or 'settled'.
ALTER TABLE card_orphans ADD COLUMN plan_id {{TEXT}};
ALTER TABLE card_orphans ADD COLUMN subscriber {{TEXT}};
ALTER TABLE card_orphans ADD COLUMN resolution TEXT;
ALTER TABLE chain_orphans ADD COLUMN resolved_at BIGINT;
ALTER TABLE chain_orphans ADD COLUMN resolution TEXT;
