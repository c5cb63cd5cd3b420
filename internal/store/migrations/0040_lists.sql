-- +goose Up

-- seller is the owner of the plan, so that the orders of all plans of an address are one range of an index.
ALTER TABLE orders ADD COLUMN seller {{TEXT}};
UPDATE orders SET seller = (SELECT p.owner FROM plans p WHERE p.plan_id = orders.plan_id);
CREATE INDEX orders_seller ON orders (seller, created_at, order_id);
CREATE INDEX orders_subscriber ON orders (subscriber, created_at, order_id);
CREATE INDEX orders_plan ON orders (plan_id, created_at, order_id);
CREATE INDEX orders_account ON orders (account_id, created_at, order_id);

-- The subscribers of a plan in an order that no settlement changes.
DROP INDEX accounts_plan;
CREATE INDEX accounts_plan ON accounts (plan_id, subscriber, account_id);
DROP INDEX accounts_subscriber;
CREATE INDEX accounts_subscriber ON accounts (subscriber, plan_id, account_id);
