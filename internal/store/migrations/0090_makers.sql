-- +goose Up
-- online: an earlier release writes no maker.

-- The person who chose the address of the webhook; NULL: no person is known.
ALTER TABLE webhooks ADD COLUMN made_by {{BYTES}};
-- The person who enrolled the card; NULL: no person is known.
ALTER TABLE payment_methods ADD COLUMN made_by {{BYTES}};
ALTER TABLE card_setups ADD COLUMN made_by {{BYTES}};
