-- +goose Up

-- Codes that were sent by mail and wait to be typed. code_id is the SHA-256 of a secret of the page that asks for the code, mail that
-- of the address, and code that of both the secret and the code, so that a reader of this table cannot find the code.
CREATE TABLE mail_codes (
    code_id {{BYTES}} NOT NULL,
    mail    {{BYTES}} NOT NULL,
    code    {{BYTES}} NOT NULL,
    tries   BIGINT    NOT NULL,
    ends_at BIGINT    NOT NULL,
    PRIMARY KEY (code_id)
){{ROWID}};
CREATE INDEX mail_codes_mail ON mail_codes (mail, ends_at);
CREATE INDEX mail_codes_end ON mail_codes (ends_at);
