// Package endpoints talks to the JSON-RPC endpoints of one chain: which of them may be believed, which is asked first, what
// is tried again and what is not.
//
// A fault of the way to an endpoint or of its form (no connection, a timeout, a page in place of JSON) is tried again and then taken to the
// next endpoint. What an endpoint answers in the form of JSON-RPC, errors included, is an answer and is returned at once.
//
// An endpoint of another chain, or one whose head is old, is not used. Several faults in a row close an endpoint for a while.
//
// Addresses of endpoints carry keys of their owners: no error, log line or record of health shows more of them than the host.
package endpoints
