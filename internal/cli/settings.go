package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/x402"
)

// Output formats.
const (
	formatTable  = "table"
	formatJSON   = "json"
	formatNDJSON = "ndjson"
	formatCSV    = "csv"
	formatQuiet  = "quiet"
)

var formats = []string{formatTable, formatJSON, formatNDJSON, formatCSV, formatQuiet}

// settings are what a run goes by: flag, else environment, else configuration file, else default.
type settings struct {
	key, url    string
	workspace   string // of a person; "": that of the API key
	environment string // that is expected of the service, "" for any
	output      string
	names       x402.Namespace // brand words of the service
	terminal    bool           // stdout is a terminal
	colour      bool           // and may be coloured
}

func (con *console) loadOutput() error {
	s := &con.set
	s.output = cmp.Or(con.flags.output, con.getenv("TOLL_OUTPUT"), formatTable)
	if con.flags.quiet {
		s.output = formatQuiet
	}
	s.output = strings.ToLower(s.output)
	if !slices.Contains(formats, s.output) {
		s.output = formatTable
		return usagef("the output must be one of %s", strings.Join(formats, ", "))
	}
	s.terminal = isTerminal(con.out)
	s.colour = s.terminal && con.mayColour()
	return nil
}

// namespaceOf returns the brand words by which a command calls the service. Commands that work on a
// database have a flag of their own for them.
func namespaceOf(cmd *cobra.Command) x402.Namespace {
	if f := cmd.Flags().Lookup("namespace"); f != nil {
		if n, ok := f.Value.(*x402.Namespace); ok && *n != (x402.Namespace{}) {
			return *n
		}
	}
	return x402.Default
}

func (a *app) loadProfile() error {
	s := &a.set
	c, err := a.readConfig()
	if err != nil {
		return err
	}
	name, err := a.named(c)
	if err != nil {
		return err
	}
	profile := c.profiles[name]
	keyInFile, err := a.keyInFile()
	if err != nil {
		return err
	}
	s.key = cmp.Or(keyInFile, strings.TrimSpace(a.getenv("TOLL_API_KEY")), profile.text(settingKey))
	s.url = cmp.Or(a.flags.url, a.getenv("TOLL_URL"), profile.text(settingURL))
	s.environment = strings.ToLower(cmp.Or(a.getenv("TOLL_ENVIRONMENT"), profile.text(settingEnvironment)))
	if checkSetting(settingURL, a.getenv("TOLL_URL")) != nil && a.flags.url == "" {
		return usagef("TOLL_URL must be an absolute http or https URL")
	}
	return nil
}

// keyInFile is the API key of --api-key-file, "" without it.
func (con *console) keyInFile() (string, error) {
	if con.flags.keyFile == "" {
		return "", nil
	}
	return readKey("API key file", con.flags.keyFile)
}

// readKey reads the key in a file that only its owner can access. Errors contain what, the kind of file, but never its content.
func readKey(what, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	if mode := info.Mode(); mode.IsRegular() && mode.Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return "", fmt.Errorf("%s %s has mode %04o, so other users can access it: run chmod 600 on it", what, path, mode.Perm())
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	return strings.TrimSpace(string(b)), nil
}

func (con *console) mayColour() bool {
	return !con.flags.noColor && con.getenv("NO_COLOR") == "" && con.getenv("TERM") != "dumb"
}

func (con *console) configPath() (path string, named bool) {
	if p := con.getenv("TOLL_CONFIG"); p != "" {
		return p, true
	}
	dir := con.getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home := con.getenv("HOME")
		if home == "" {
			return "", false
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "toll", "config.json"), false
}

// noConfig is TOLL_CONFIG at a file that does not exist.
func noConfig(path string) error {
	return fmt.Errorf("configuration: the file %s in TOLL_CONFIG does not exist; create it with toll config init", path)
}

// readConfig returns what is configured, which may be nothing.
func (con *console) readConfig() (*configuration, error) {
	path, named := con.configPath()
	if path == "" {
		return new(configuration), nil
	}
	info, err := os.Stat(path)
	if named && errors.Is(err, fs.ErrNotExist) {
		return nil, noConfig(path)
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		con.say("warning", "other users can read %s: run chmod 600 on it", path)
	}
	return con.openConfig()
}

func (a *app) client() *client.Client {
	opts := []client.Option{client.WithUserAgent("toll-cli/" + release()), client.WithNamespace(a.set.names)}
	if a.set.url != "" {
		opts = append(opts, client.WithURL(a.set.url))
	}
	if a.set.workspace != "" {
		opts = append(opts, client.WithWorkspace(a.set.workspace))
	}
	return client.New(a.set.key, opts...)
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
