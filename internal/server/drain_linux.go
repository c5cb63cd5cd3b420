package server

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// refuseConnections has the kernel ignore requests for new connections on the socket of a listener. Connections that
// were begun go on, so that they can be accepted before the listener is closed; closing it resets
// those that wait. A client whose request is ignored sends it again after a second, is refused by the
// closed port, and knows that nothing was sent: nginx then takes the next process for a POST, too.
func refuseConnections(raw syscall.RawConn) error {
	// What the filter reads begins with the header of TCP: flags are at byte 13.
	const flags, syn, ack = 13, 0x02, 0x10
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: syn | ack},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: syn, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program)
	})
	return errors.Join(err, failed)
}
