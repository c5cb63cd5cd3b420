package seal

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// maxWords bounds a file with secrets, in bytes.
const maxWords = 4096

// Words returns the words of a file with secrets of others, such as keys of a service. It refuses a file that others can
// read. setting is what names the file, for errors.
func Words(path, setting string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	if mode := info.Mode().Perm(); mode&others(info) != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("the file %s has mode %04o, which gives other users access to its secrets: run chmod 600 on it", path, mode)
	}
	if info.Size() > maxWords {
		return nil, fmt.Errorf("the file %s is larger than %d bytes: fix %s", path, maxWords, setting)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	return strings.Fields(string(text)), nil
}
