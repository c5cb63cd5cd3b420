-- +goose Up

-- Persons. A time of 0 is none.
CREATE TABLE users (
    user_id     {{BYTES}} NOT NULL,
    name        TEXT      NOT NULL,
    is_operator BOOLEAN   NOT NULL,
    created_at  BIGINT    NOT NULL,
    disabled_at BIGINT    NOT NULL,
    PRIMARY KEY (user_id)
){{ROWID}};

-- With what a person signs in. kind is password, passkey, recovery, mail, oidc or wallet; subject is what is unique within a kind:
-- the login name, the id of the passkey, the hash of the code, the address, "issuer subject". secret is a hash or a public key.
CREATE TABLE credentials (
    credential_id {{BYTES}} NOT NULL,
    user_id       {{BYTES}} NOT NULL,
    kind          {{TEXT}}  NOT NULL,
    subject       {{TEXT}}  NOT NULL,
    name          TEXT      NOT NULL,
    secret        {{BYTES}} NOT NULL,
    created_at    BIGINT    NOT NULL,
    used_at       BIGINT    NOT NULL,
    PRIMARY KEY (credential_id)
){{ROWID}};
CREATE UNIQUE INDEX credentials_subject ON credentials (kind, subject);
CREATE INDEX credentials_user ON credentials (user_id, created_at);

-- Who may do what in a workspace, which is a row of principals. A workspace without a row here has no person yet.
CREATE TABLE memberships (
    workspace  {{TEXT}}  NOT NULL,
    user_id    {{BYTES}} NOT NULL,
    role       TEXT      NOT NULL,
    created_at BIGINT    NOT NULL,
    PRIMARY KEY (workspace, user_id)
){{ROWID}};
CREATE INDEX memberships_user ON memberships (user_id, created_at);

-- Links that work once: hash is the SHA-256 of the secret in the link. kind is join (a workspace), sign_up, operator (the first
-- one) or recover. workspace is empty, and user_id NULL, where the kind has none. made_by is the person who made the link.
CREATE TABLE links (
    hash       {{BYTES}} NOT NULL,
    kind       TEXT      NOT NULL,
    workspace  {{TEXT}}  NOT NULL,
    role       TEXT      NOT NULL,
    user_id    {{BYTES}},
    made_by    {{BYTES}},
    note       TEXT      NOT NULL,
    created_at BIGINT    NOT NULL,
    ends_at    BIGINT    NOT NULL,
    used_at    BIGINT    NOT NULL,
    used_by    {{BYTES}},
    PRIMARY KEY (hash)
){{ROWID}};
CREATE INDEX links_workspace ON links (workspace, created_at);
CREATE INDEX links_end ON links (ends_at);

-- Who a session of a browser is of, to be shown and ended; NULL and 0 for that of an API key. session_id names it on pages.
ALTER TABLE browser_sessions ADD COLUMN user_id {{BYTES}};
ALTER TABLE browser_sessions ADD COLUMN session_id {{TEXT}};
ALTER TABLE browser_sessions ADD COLUMN agent TEXT;
ALTER TABLE browser_sessions ADD COLUMN since BIGINT;
ALTER TABLE browser_sessions ADD COLUMN used_at BIGINT;
ALTER TABLE browser_sessions ADD COLUMN proof TEXT;
ALTER TABLE browser_sessions ADD COLUMN proved_at BIGINT;
CREATE INDEX browser_sessions_user ON browser_sessions (user_id, since) WHERE user_id IS NOT NULL;

-- The person under whose membership a key or a consent stands, with all that came of it; NULL for none.
ALTER TABLE api_keys ADD COLUMN user_id {{BYTES}};
CREATE INDEX api_keys_user ON api_keys (user_id, address) WHERE user_id IS NOT NULL;
ALTER TABLE oauth_grants ADD COLUMN user_id {{BYTES}};
CREATE INDEX oauth_grants_user ON oauth_grants (user_id, owner) WHERE user_id IS NOT NULL;

-- What was done, in a chain of hashes per workspace; that of the operator has the empty workspace. actor_kind is user, key or
-- local. detail is JSON. source is a random text, a blank and the address; it is dropped after 90 days, and source_hash is in the chain.
CREATE TABLE audit_log (
    workspace   {{TEXT}}  NOT NULL,
    number      BIGINT    NOT NULL,
    at          BIGINT    NOT NULL,
    actor_kind  TEXT      NOT NULL,
    actor       TEXT      NOT NULL,
    act         TEXT      NOT NULL,
    object      TEXT      NOT NULL,
    detail      TEXT      NOT NULL,
    source      TEXT,
    source_hash {{BYTES}} NOT NULL,
    hash        {{BYTES}} NOT NULL,
    PRIMARY KEY (workspace, number)
){{ROWID}};
CREATE INDEX audit_log_source ON audit_log (at) WHERE source IS NOT NULL;

CREATE TABLE audit_heads (
    workspace {{TEXT}}  NOT NULL,
    last      BIGINT    NOT NULL,
    hash      {{BYTES}} NOT NULL,
    PRIMARY KEY (workspace)
){{ROWID}};
