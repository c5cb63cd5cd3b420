-- +goose Up

-- reading is how often the chain had been read for the delegation when the order was made. reversed is 1 when the credits of
-- an order were taken back, as its payment turned out not to have been made: of them taken_back came back, loss was used up
-- before, and held_back is kept by open holds, which decide what becomes of it. All are NULL for orders that are older than they
-- are.
ALTER TABLE orders ADD COLUMN reading BIGINT;
ALTER TABLE orders ADD COLUMN reversed BIGINT;
ALTER TABLE orders ADD COLUMN taken_back BIGINT;
ALTER TABLE orders ADD COLUMN loss BIGINT;
ALTER TABLE orders ADD COLUMN held_back BIGINT;
CREATE INDEX orders_held_back ON orders (updated_at) WHERE held_back > 0;

-- owner_account is an account that the user holds, '' for the wallet that the service holds. Such a delegation pays once
-- signature is there. disable_at is when it is disabled on the chain next, 0 when there is nothing to do.
--
-- paid_cents is what its paid orders took. beyond_cents is how much more than that the chain had counted when it was read last,
-- and unclear_cents is what the orders that were open then, and still are, may have of it: neither is known of them. readings
-- counts. spent_cents follows from these.
ALTER TABLE delegations ADD COLUMN owner_account TEXT;
ALTER TABLE delegations ADD COLUMN signature {{BYTES}};
ALTER TABLE delegations ADD COLUMN account_authorization TEXT;
ALTER TABLE delegations ADD COLUMN disable_at BIGINT;
ALTER TABLE delegations ADD COLUMN paid_cents BIGINT;
ALTER TABLE delegations ADD COLUMN beyond_cents BIGINT;
ALTER TABLE delegations ADD COLUMN unclear_cents BIGINT;
ALTER TABLE delegations ADD COLUMN readings BIGINT;
UPDATE delegations SET owner_account = '', account_authorization = '', disable_at = 0, paid_cents = spent_cents, beyond_cents = 0,
    unclear_cents = 0, readings = 0;
CREATE INDEX delegations_disable ON delegations (disable_at) WHERE disable_at > 0;
