package gateway

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/tollhq/toll/internal/tempfile"
)

// TokenFile is the file name of the core token in the data directory.
const TokenFile = "gateway.token"

// newToken describes the temporary files of a new core token.
var newToken = tempfile.Kind{Prefix: ".gateway-token-"}

// CoreToken returns the core token in a data directory: 32 random bytes in base64url. The first call creates it. It is an error
// if the file is accessible to its group or to other users.
func CoreToken(dir string) (string, error) {
	token, err := readToken(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	if err := writeToken(dir, false); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("core token: %w", err)
	}
	return readToken(dir) // if two processes create a token, both return the same token
}

// RotateCoreToken replaces the core token and returns the new token. A running core uses it from the next request on.
func RotateCoreToken(dir string) (string, error) {
	if err := writeToken(dir, true); err != nil {
		return "", fmt.Errorf("core token: %w", err)
	}
	return readToken(dir)
}

// makeDir creates a data directory. It rejects a world-writable one, where any user could place a core token or a login.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err == nil && info.Mode().Perm()&0o002 != 0 && runtime.GOOS != "windows" {
		err = fmt.Errorf("the data directory %s has mode %04o; any user can write to it: run chmod 700 on it", dir, info.Mode().Perm())
	}
	return err
}

func writeToken(dir string, replace bool) error {
	if err := makeDir(dir); err != nil {
		return err
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	text := base64.RawURLEncoding.EncodeToString(secret) + "\n"
	return newToken.Write(filepath.Join(dir, TokenFile), []byte(text), replace)
}

func readToken(dir string) (string, error) {
	path := filepath.Join(dir, TokenFile)
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("core token: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return "", fmt.Errorf("core token: %s has mode %04o; only its owner must have access: run chmod 600 on it", path, info.Mode().Perm())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("core token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if secret, err := base64.RawURLEncoding.DecodeString(token); err != nil || len(secret) != 32 {
		return "", fmt.Errorf("core token: %s is damaged: run toll gateway token --rotate", path)
	}
	return token, nil
}

// MCPToken derives the MCP token from a core token: HMAC-SHA256 with the core token as the key, 32 bytes in base64url. It is
// valid only for /mcp, so that an MCP host cannot configure the core. It changes with the core token.
func MCPToken(coreToken string) string {
	h := hmac.New(sha256.New, []byte(coreToken))
	_, _ = h.Write([]byte("toll gateway mcp 1")) // it never fails
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// isToken reports whether got is the core token or, for MCP, the MCP token. It reads the file on each call, so that a rotation
// takes effect at once.
func (c *Core) isToken(got string, forMCP bool) bool {
	want := c.opts.CoreToken
	if want == "" {
		var err error
		if want, err = readToken(c.opts.Dir); err != nil {
			c.log.Error("the core token cannot be read", "error", err)
			return false
		}
	}
	same := func(want string) bool {
		a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
		return subtle.ConstantTimeCompare(a[:], b[:]) == 1
	}
	return same(want) || forMCP && same(MCPToken(want))
}
