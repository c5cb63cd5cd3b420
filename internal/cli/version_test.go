package cli

import (
	"runtime/debug"
	"testing"
)

func TestVersionStamp(t *testing.T) {
	const commit = "0a921f57c3de9d84ba7a3f6ff7a0d7c4d8f5e0aa"
	build := func(version, revision string) *debug.BuildInfo {
		b := &debug.BuildInfo{Main: debug.Module{Version: version}}
		if revision != "" {
			b.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: revision}}
		}
		return b
	}
	for _, c := range []struct {
		set  string
		info *debug.BuildInfo
		want string
	}{
		{"", nil, "dev"},
		{"1.1.0", nil, "1.1.0"},
		{"", build("(devel)", ""), "dev"},
		{"", build("(devel)", commit), "dev+0a921f57c3de"},
		{"1.1.0", build("(devel)", commit), "1.1.0+0a921f57c3de"},
		{"", build("v1.1.0", commit), "1.1.0+0a921f57c3de"},
		{"", build("v1.1.0+dirty", commit), "1.1.0+dirty.0a921f57c3de"},
		{"", build("v0.0.0-20261126203826-0a921f57c3de", commit), "0.0.0-20261126203826-0a921f57c3de"},
		{"", build("v1.1.0", "abc"), "1.1.0+abc"},
	} {
		if got := stamp(c.set, c.info); got != c.want {
			t.Errorf("%q, %+v: %s, want %s", c.set, c.info, got, c.want)
		}
	}
}
