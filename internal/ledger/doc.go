// Package ledger keeps the credits: accounts, lots, holds and entries, and the writer that commits them in groups.
//
// An account is one (plan, subscriber) pair. Every change goes one way: lock the row of the account, read what the
// operations need, decide in the pure function [apply], write, commit, answer. Operations that wait are applied
// together, so that one commit serves many callers, and no caller is answered before its commit is on disk.
//
// What always holds (checked by the store's constraints, by [Ledger.Audit] and by the tests): per account minted +
// returned = balance + burned + expired + taken back; 0 <= held <= balance; one burn per request id, whatever is
// repeated, in parallel, over processes and restarts; the same request again gets the first answer byte for byte.
package ledger
