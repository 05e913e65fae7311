// The folder of the user in which the demo keeps its store.

package main

import "path/filepath"

// stateDir returns where programs keep what is theirs to go on with: on Unix as the XDG
// base directory specification has it, elsewhere as the system does.
func stateDir(goos string, env func(string) string) (string, error) {
	var dir, variables string
	switch goos {
	case "windows":
		dir, variables = env("LocalAppData"), "LocalAppData"
	case "darwin", "ios":
		dir, variables = under(env("HOME"), "Library", "Application Support"), "HOME"
	default:
		dir, variables = env("XDG_STATE_HOME"), "XDG_STATE_HOME or HOME"
		if !filepath.IsAbs(dir) { // "consider the path invalid and ignore it"
			dir = under(env("HOME"), ".local", "state")
		}
	}
	if !filepath.IsAbs(dir) {
		return "", &usageError{"a folder for the demo's store, by an absolute path in " + variables, "none",
			"name the store: wattle demo --store file:DIR, or --store mem: for one in memory"}
	}
	return dir, nil
}

// under joins unless there is nothing to be under.
func under(home string, elements ...string) string {
	if home == "" {
		return ""
	}
	return filepath.Join(append([]string{home}, elements...)...)
}
