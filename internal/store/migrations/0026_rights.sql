-- +goose Up

-- made_by is local, user, key or grant; parent the API key or the consent that made the key, NULL for none. rights are words with
-- blanks between. The end of a key is expires_at. ending is true while something that a revoked key made may still have to be
-- ended. NULL of keys from before: local, with all rights; but no key of a consent gets the right to export the wallet.
ALTER TABLE api_keys ADD COLUMN made_by {{TEXT}};
ALTER TABLE api_keys ADD COLUMN parent {{BYTES}};
ALTER TABLE api_keys ADD COLUMN rights TEXT;
ALTER TABLE api_keys ADD COLUMN ending BOOLEAN;
UPDATE api_keys SET rights = 'read sell spend manage money keys',
    made_by = (SELECT CASE WHEN g.client_id = '' THEN 'user' ELSE 'grant' END FROM oauth_access a
        JOIN oauth_grants g ON g.grant_id = a.grant_id WHERE a.id = api_keys.id),
    parent = (SELECT a.grant_id FROM oauth_access a WHERE a.id = api_keys.id)
    WHERE id IN (SELECT a.id FROM oauth_access a JOIN oauth_grants g ON g.grant_id = a.grant_id);
CREATE INDEX api_keys_parent ON api_keys (parent) WHERE parent IS NOT NULL;
CREATE INDEX api_keys_ending ON api_keys (id) WHERE ending;

-- parent is the API key of the session in which the person agreed, NULL for none; rights are those of the API key that the consent
-- gives; NULL of grants from before.
ALTER TABLE oauth_grants ADD COLUMN parent {{BYTES}};
ALTER TABLE oauth_grants ADD COLUMN rights TEXT;
CREATE INDEX oauth_grants_parent ON oauth_grants (parent) WHERE parent IS NOT NULL;

-- The access tokens that end with an API key. No column of it changes with a settlement.
CREATE INDEX permissions_key ON permissions (api_key_id, permission_hash) WHERE api_key_id <> '';
