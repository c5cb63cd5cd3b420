-- +goose Up

-- Codes with which a program that a person signed in to gets its API key. hash is the SHA-256 of the code.
CREATE TABLE sign_in_codes (
    hash       {{BYTES}} NOT NULL,
    address    {{TEXT}}  NOT NULL,
    challenge  {{TEXT}}  NOT NULL,
    redirect   {{TEXT}}  NOT NULL,
    expires_at BIGINT    NOT NULL,
    PRIMARY KEY (hash)
){{ROWID}};
CREATE INDEX sign_in_codes_end ON sign_in_codes (expires_at);
