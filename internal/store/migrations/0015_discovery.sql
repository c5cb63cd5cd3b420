-- +goose Up

-- NULL signs API keys and access tokens, 'statement' offers and receipts.
ALTER TABLE signing_keys ADD COLUMN purpose TEXT;

-- What a payment said of an endpoint that it was for: shown in the catalogue beside what the builder registered.
CREATE TABLE discovered (
    agent_id   {{TEXT}} NOT NULL REFERENCES agents (agent_id),
    verb       {{TEXT}} NOT NULL,
    url        {{TEXT}} NOT NULL,
    mime_type  TEXT     NOT NULL,
    info       TEXT     NOT NULL,
    updated_at BIGINT   NOT NULL,
    PRIMARY KEY (agent_id, verb, url)
){{ROWID}};
