// Package server composes, and should do nothing else.
package server

import (
	_ "encoding/json" // want `the room that composes has no JSON document`

	_ "example.org/bad/internal/chain/deep" // want `the room that composes leaves the rooms of a rail to the rail`
)

var _ int
