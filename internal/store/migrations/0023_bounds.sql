-- +goose Up

-- The network that registered an address: nobody has the room of all. NULL of those that were there before.
ALTER TABLE oauth_redirects ADD COLUMN source {{TEXT}};
CREATE INDEX oauth_redirects_source ON oauth_redirects (source, used_at) WHERE NOT granted;

-- Whom the plans of an owner pay: a payment to somebody else is refused without reading the plans.
CREATE TABLE plan_receivers (
    owner    {{TEXT}} NOT NULL,
    receiver {{TEXT}} NOT NULL,
    PRIMARY KEY (owner, receiver)
){{ROWID}};
INSERT INTO plan_receivers (owner, receiver)
    SELECT DISTINCT p.owner, LOWER(r.value) FROM plans p, {{RECEIVERS}} WHERE r.value IS NOT NULL;
