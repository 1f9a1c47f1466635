
# The directories that the command line names: each root has names of its own.
function __fish_xebec_directories
    set -l option
    for word in (commandline -opc)
        set -l parts (string match --regex -- '^(--root|--run)=(.*)$' $word)
        if set -q parts[1]
            set option $parts[2]
            set word $parts[3]
        else if set -q option[1]
            # Of a word of its own, the shell expands it.
            set word (string replace --regex -- '^~/' "$HOME/" $word)
        end
        if set -q option[1]
            printf '%s\n' $option $word
            set option
        else if contains -- $word --root --run
            set option $word
        end
    end
end

