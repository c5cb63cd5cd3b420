//go:build !linux

package server

import (
	"errors"
	"syscall"
)

// refuseConnections is there on Linux alone.
func refuseConnections(syscall.RawConn) error { return errors.ErrUnsupported }
