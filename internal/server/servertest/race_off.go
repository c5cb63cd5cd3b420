//go:build !race

package servertest

// raceEnabled says that the test binary has the race detector, so that the program gets it as well.
const raceEnabled = false
