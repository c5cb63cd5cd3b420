// Package deep is a room of a rail.
package deep
