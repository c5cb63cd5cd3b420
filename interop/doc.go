// Package interop runs the service against software of others: real processes, the published packages of x402 in the versions of
// package.json, and a recorder between the parties. It holds tests alone.
//
// The packages come from npm once and are kept in the cache of the user. After that nothing here needs the internet.
package interop
