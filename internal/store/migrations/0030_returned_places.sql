-- +goose Up
-- online: earlier releases count these orders like all others, so they sell fewer places, and decide them as before.

-- Open orders that have given their place among the orders of their plan back. They are still counted in plan_orders: what is
-- here is subtracted while the order is open. Rows of orders that are decided mean nothing, and are removed when they are met.
CREATE TABLE returned_places (
    plan_id       {{TEXT}}  NOT NULL,
    order_id      {{TEXT}}  NOT NULL,
    order_account {{BYTES}} NOT NULL,
    PRIMARY KEY (plan_id, order_id)
){{ROWID}};
