-- +goose Up

-- What a member may have the workspace pay in a month, in cents. NULL: no limit.
ALTER TABLE memberships ADD COLUMN spend_limit_cents BIGINT;
-- Who had the wallet of the workspace pay; cents says how much. NULL: nobody, or a delegation pays.
ALTER TABLE orders ADD COLUMN ordered_by {{BYTES}};
CREATE INDEX orders_ordered_by ON orders (ordered_by, created_at) WHERE ordered_by IS NOT NULL;
-- Who made it; NULL: nobody who is known.
ALTER TABLE delegations ADD COLUMN made_by {{BYTES}};
CREATE INDEX delegations_made_by ON delegations (made_by, expires_at) WHERE made_by IS NOT NULL;
