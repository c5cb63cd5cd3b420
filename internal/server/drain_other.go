//go:build !linux

package server

import (
	"errors"
	"net"
	"syscall"
)

// refuseConnections works on Linux alone.
func refuseConnections(syscall.RawConn) error { return errors.ErrUnsupported }

func serveConnection(net.Conn) {}
