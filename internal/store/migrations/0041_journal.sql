-- +goose Up

-- Every entry of every account, in the order of commits: pos is 1, 2, 3 ... without a gap. Rows are only ever added. ref is packed (see
-- JournalRow), body has what else belongs to the entry: its flags, and of a burn its request and the answer to it.
CREATE TABLE journal (
    pos           {{POS}}   NOT NULL,
    seq           BIGINT    NOT NULL,
    kind          BIGINT    NOT NULL,
    amount        BIGINT    NOT NULL CHECK (amount >= 0),
    balance_after BIGINT    NOT NULL CHECK (balance_after >= 0),
    at            BIGINT    NOT NULL,
    account_id    {{BYTES}} NOT NULL,
    commitment    {{BYTES}} NOT NULL,
    ref           {{BYTES}} NOT NULL,
    body          {{BYTES}} NOT NULL,
    PRIMARY KEY (pos{{AND_ACCOUNT}})
){{PARTITION}};
-- One burn for each request. Ids of requests ascend with time, so the index grows at its end.
CREATE UNIQUE INDEX journal_burns ON journal (ref, account_id) WHERE kind = 2;

-- Where the follower of the journal, and others that read it in order, are: all rows up to pos are done.
CREATE TABLE journal_cursors (
    name {{TEXT}} NOT NULL,
    pos  BIGINT   NOT NULL,
    PRIMARY KEY (name)
){{ROOM}}{{ROWID}};
INSERT INTO journal_cursors (name, pos) VALUES ('follower', 0), ('mirror', 0);

-- Indexes that the follower writes. prefix is the first 8 bytes of a commitment.
CREATE TABLE journal_commitments (
    prefix BIGINT NOT NULL,
    pos    BIGINT NOT NULL,
    PRIMARY KEY (prefix, pos)
){{ROWID}};

-- The positions of 32 entries of an account, those of seq 32 * chunk + 1 and on: 6 bytes each, big-endian.
CREATE TABLE journal_accounts (
    account_id {{BYTES}} NOT NULL,
    chunk      BIGINT    NOT NULL,
    positions  {{BYTES}} NOT NULL,
    PRIMARY KEY (account_id, chunk)
){{PARTITION}}{{ROOM}}{{ROWID}};

-- The balance below which an account is low: a share of its last grant.
ALTER TABLE accounts ADD COLUMN low_mark BIGINT;

-- Events of settlements have no row each: a run has up to 1,024 of a stream, packed: their sequences, and the positions of their
-- entries in the journal. Between first and last other events may have rows. events_before are those of the runs before it in the
-- stream, first_at and last_at the earliest and the latest time of its own. The newest, as long as it is short, is the tail of the row
-- of the stream, and settled counts the settlements of all runs; NULL is none.
CREATE TABLE event_runs (
    principal     {{TEXT}}  NOT NULL,
    first         BIGINT    NOT NULL,
    last          BIGINT    NOT NULL,
    events_before BIGINT    NOT NULL,
    events        BIGINT    NOT NULL,
    first_at      BIGINT    NOT NULL,
    last_at       BIGINT    NOT NULL,
    packed        {{BYTES}} NOT NULL,
    PRIMARY KEY (principal, first)
);
CREATE UNIQUE INDEX event_runs_number ON event_runs (principal, events_before);
CREATE INDEX event_runs_time ON event_runs (principal, last_at, first_at, events_before, events, first);
ALTER TABLE event_streams ADD COLUMN settled BIGINT;
ALTER TABLE event_streams ADD COLUMN tail {{BYTES}};
