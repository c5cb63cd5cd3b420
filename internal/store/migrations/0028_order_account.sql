-- +goose Up

-- online: an earlier release leaves the column empty, and the account of such an order is read from orders.

-- The account of the order that an operation pays or voids, so that the rail decides the order in the transaction that stores
-- what proves it. NULL: there is none, or an earlier release made the operation.
ALTER TABLE chain_ops ADD COLUMN order_account {{BYTES}};
