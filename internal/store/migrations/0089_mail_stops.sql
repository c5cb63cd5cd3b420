-- +goose Up
-- online: an earlier release sends codes to stopped addresses until it ends.

-- Addresses to which no codes are sent when a stranger asks. mail is the SHA-256 of the address.
CREATE TABLE mail_stops (
    mail       {{BYTES}} NOT NULL,
    created_at BIGINT    NOT NULL,
    PRIMARY KEY (mail)
){{ROWID}};
