package cli

import "github.com/spf13/cobra"

var shells = []string{"bash", "zsh", "fish", "powershell"}

func (a *app) completionCommand() *cobra.Command {
	c := command("completion SHELL", "Print the completion script of a shell", func(cmd *cobra.Command, args []string) error {
		root := cmd.Root()
		switch args[0] {
		case "bash":
			return root.GenBashCompletionV2(a.out, true)
		case "zsh":
			return root.GenZshCompletion(a.out)
		case "fish":
			return root.GenFishCompletion(a.out, true)
		case "powershell":
			return root.GenPowerShellCompletionWithDesc(a.out)
		}
		return usagef("the shell is bash, zsh, fish or powershell")
	})
	c.Long = "Print the completion script of a shell: bash, zsh, fish or powershell."
	c.Example = "source <(toll completion bash)\ntoll completion zsh > \"${fpath[1]}/_toll\"\ntoll completion fish > ~/.config/fish/completions/toll.fish"
	c.ValidArgs = shells
	c.Annotations = map[string]string{annotationNoProfile: "yes"}
	return c
}

// completeFlags names the values of flags that have few.
func completeFlags(root *cobra.Command) {
	for name, values := range map[string][]string{"output": formats, "format": formats} {
		if err := root.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err) // the flags are defined by the caller
		}
	}
}
