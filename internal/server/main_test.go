package server_test

import (
	"os"
	"testing"

	"github.com/tollhq/toll/internal/server/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }
