-- +goose Up

-- Codes of sign-ins are codes of consents now. They live for a minute.
DROP TABLE sign_in_codes;

-- Programs that registered themselves. secret is the SHA-256 of the client secret, empty for none; grants are words with
-- blanks between; details is JSON of what is only shown. used_at moves with every use, and a client that is not used goes.
CREATE TABLE oauth_clients (
    client_id   {{TEXT}}  NOT NULL,
    name        TEXT      NOT NULL,
    auth_method TEXT      NOT NULL,
    secret      {{BYTES}} NOT NULL,
    grants      TEXT      NOT NULL,
    scope       TEXT      NOT NULL,
    details     TEXT      NOT NULL,
    created_at  BIGINT    NOT NULL,
    used_at     BIGINT    NOT NULL,
    PRIMARY KEY (client_id)
){{ROWID}};
CREATE INDEX oauth_clients_used ON oauth_clients (used_at);

-- Where answers may go, for each client. A client that stands for an agent has those of many programs, each with its name:
-- they are shared.
CREATE TABLE oauth_redirects (
    client_id    {{TEXT}} NOT NULL,
    redirect_uri {{TEXT}} NOT NULL,
    name         TEXT     NOT NULL,
    shared       BOOLEAN  NOT NULL,
    used_at      BIGINT   NOT NULL,
    PRIMARY KEY (client_id, redirect_uri)
){{ROWID}};
CREATE INDEX oauth_redirects_used ON oauth_redirects (used_at);

-- What a person agreed to: everything that is issued because of it is of one family, and ends with it. digest is of what
-- the person was shown of the client; life is in seconds, and ends_at is that of its code until that is exchanged. revoking
-- is true while something that was issued may still have to be ended.
CREATE TABLE oauth_grants (
    grant_id         {{BYTES}} NOT NULL,
    client_id        {{TEXT}}  NOT NULL,
    client_name      TEXT      NOT NULL,
    digest           {{BYTES}} NOT NULL,
    owner            {{TEXT}}  NOT NULL,
    kind             TEXT      NOT NULL,
    scope            TEXT      NOT NULL,
    resource         TEXT      NOT NULL,
    nonce            TEXT      NOT NULL,
    plan_id          TEXT      NOT NULL,
    agent_id         TEXT      NOT NULL,
    delegation_id    TEXT      NOT NULL,
    redemption_limit BIGINT,
    order_limit      BIGINT,
    refreshes        BOOLEAN   NOT NULL,
    life             BIGINT    NOT NULL,
    created_at       BIGINT    NOT NULL,
    ends_at          BIGINT    NOT NULL,
    revoked_at       BIGINT    NOT NULL,
    revoking         BOOLEAN   NOT NULL,
    PRIMARY KEY (grant_id)
){{ROWID}};
CREATE INDEX oauth_grants_end ON oauth_grants (ends_at);
CREATE INDEX oauth_grants_revoking ON oauth_grants (grant_id) WHERE revoking;

-- hash is the SHA-256 of a code, here and below. A used code stays as long as what it was exchanged for.
CREATE TABLE oauth_codes (
    hash         {{BYTES}} NOT NULL,
    grant_id     {{BYTES}} NOT NULL,
    redirect_uri TEXT      NOT NULL,
    challenge    TEXT      NOT NULL,
    expires_at   BIGINT    NOT NULL,
    used_at      BIGINT    NOT NULL,
    PRIMARY KEY (hash)
){{ROWID}};
CREATE INDEX oauth_codes_grant ON oauth_codes (grant_id);

CREATE TABLE oauth_refresh_tokens (
    hash       {{BYTES}} NOT NULL,
    grant_id   {{BYTES}} NOT NULL,
    created_at BIGINT    NOT NULL,
    used_at    BIGINT    NOT NULL,
    PRIMARY KEY (hash)
){{ROWID}};
CREATE INDEX oauth_refresh_tokens_grant ON oauth_refresh_tokens (grant_id);

-- Permissions and API keys that were made of a grant, by their id.
CREATE TABLE oauth_access (
    id         {{BYTES}} NOT NULL,
    grant_id   {{BYTES}} NOT NULL,
    created_at BIGINT    NOT NULL,
    PRIMARY KEY (id)
){{ROWID}};
CREATE INDEX oauth_access_grant ON oauth_access (grant_id, created_at);

-- Devices that wait for a person. user_hash is of the code that the person types. poll_at is when the device asked last,
-- poll_secs how long it is to wait in between. grant_id is empty until a person decided for it; denied says that one refused.
CREATE TABLE oauth_devices (
    hash       {{BYTES}} NOT NULL,
    user_hash  {{BYTES}} NOT NULL,
    client_id  {{TEXT}}  NOT NULL,
    scope      TEXT      NOT NULL,
    resource   TEXT      NOT NULL,
    plan_id    TEXT      NOT NULL,
    agent_id   TEXT      NOT NULL,
    source     TEXT      NOT NULL,
    grant_id   {{BYTES}} NOT NULL,
    denied     BOOLEAN   NOT NULL,
    created_at BIGINT    NOT NULL,
    expires_at BIGINT    NOT NULL,
    poll_at    BIGINT    NOT NULL,
    poll_secs  BIGINT    NOT NULL,
    used_at    BIGINT    NOT NULL,
    PRIMARY KEY (hash)
){{ROWID}};
CREATE UNIQUE INDEX oauth_devices_user ON oauth_devices (user_hash);
CREATE INDEX oauth_devices_end ON oauth_devices (expires_at);

-- Codes of devices that a person typed wrongly since a moment.
CREATE TABLE oauth_guesses (
    owner    {{TEXT}} NOT NULL,
    wrong    BIGINT   NOT NULL,
    since    BIGINT   NOT NULL,
    PRIMARY KEY (owner)
){{ROWID}};
CREATE INDEX oauth_guesses_since ON oauth_guesses (since);
