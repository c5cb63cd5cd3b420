// Package client is the Go SDK over HTTP.
package client
