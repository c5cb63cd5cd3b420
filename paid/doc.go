// Package paid puts a price on HTTP handlers: verify with a hold, run, settle, and only then answer.
package paid
