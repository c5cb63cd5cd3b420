// Package chaintest holds what the tests of the crypto rail share: chains that are made for a test and end with it, and what
// stands between a chain and who uses it.
package chaintest
