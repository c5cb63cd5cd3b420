-- +goose Up
-- online: earlier releases do not bound the fees of refunds, and never read this table.

-- The fees of the payments of which a builder began a refund on a day, in cents. A builder has one row, that of the last such day.
CREATE TABLE card_refund_fees (
    seller {{TEXT}} NOT NULL,
    day    BIGINT   NOT NULL,
    cents  BIGINT   NOT NULL CHECK (cents >= 0),
    PRIMARY KEY (seller)
){{ROWID}};
