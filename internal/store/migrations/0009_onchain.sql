-- +goose Up

-- reading is how often the chain had been read for the delegation when the order was made. reversed is 1 when the credits of
-- an order were taken back, as its payment turned out not to have been made: of them taken_back came back, loss was used up
-- before, and held_back is kept by open holds, which decide what becomes of it.
ALTER TABLE orders ADD COLUMN reading BIGINT NOT NULL DEFAULT 0;
ALTER TABLE orders ADD COLUMN reversed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE orders ADD COLUMN taken_back BIGINT NOT NULL DEFAULT 0;
ALTER TABLE orders ADD COLUMN loss BIGINT NOT NULL DEFAULT 0;
ALTER TABLE orders ADD COLUMN held_back BIGINT NOT NULL DEFAULT 0;
CREATE INDEX orders_held_back ON orders (updated_at) WHERE held_back > 0;

-- owner_account is an account that the user holds, '' for the wallet that the service holds. Such a delegation pays once
-- signature is there. disable_at is when it is disabled on the chain next, 0 when there is nothing to do.
--
-- paid_cents is what its paid orders took. beyond_cents is how much more than that the chain had counted when it was read last,
-- and unclear_cents is what the orders that were open then, and still are, may have of it: neither is known of them. readings
-- counts. spent_cents follows from these.
ALTER TABLE delegations ADD COLUMN owner_account TEXT NOT NULL DEFAULT '';
ALTER TABLE delegations ADD COLUMN signature {{BYTES}};
ALTER TABLE delegations ADD COLUMN account_authorization TEXT NOT NULL DEFAULT '';
ALTER TABLE delegations ADD COLUMN disable_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE delegations ADD COLUMN paid_cents BIGINT NOT NULL DEFAULT 0;
ALTER TABLE delegations ADD COLUMN beyond_cents BIGINT NOT NULL DEFAULT 0;
ALTER TABLE delegations ADD COLUMN unclear_cents BIGINT NOT NULL DEFAULT 0;
ALTER TABLE delegations ADD COLUMN readings BIGINT NOT NULL DEFAULT 0;
UPDATE delegations SET paid_cents = spent_cents;
CREATE INDEX delegations_disable ON delegations (disable_at) WHERE disable_at > 0;
