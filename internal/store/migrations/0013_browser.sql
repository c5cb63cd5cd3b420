-- +goose Up

-- Sessions of browsers in which a person signed in. token is a hash of what the cookie holds.
CREATE TABLE browser_sessions (
    token      {{TEXT}}  NOT NULL,
    data       {{BYTES}} NOT NULL,
    expires_at BIGINT    NOT NULL,
    PRIMARY KEY (token)
){{ROWID}};
CREATE INDEX browser_sessions_end ON browser_sessions (expires_at);

-- What persons decided on forms. form is the SHA-256 of the ticket of the form; answer is where the browser was sent, sealed, and
-- empty until that is known.
CREATE TABLE browser_answers (
    form       {{BYTES}} NOT NULL,
    answer     {{BYTES}} NOT NULL,
    expires_at BIGINT    NOT NULL,
    PRIMARY KEY (form)
){{ROWID}};
CREATE INDEX browser_answers_end ON browser_answers (expires_at);

-- The list of what a person let in.
CREATE INDEX oauth_grants_owner ON oauth_grants (owner, created_at);
