
# Names of images, containers, networks and volumes, beside what the function above completes.

# Which kinds of names can follow these words, if any.
_xebec_kinds() {
    local path= kinds= many= valued=" --root --run " named= count=0 skip= word
    for word in "$@"; do
        if [[ -n $skip ]]; then
            skip=
            continue
        fi
        if [[ $word == -* ]]; then
            [[ $valued == *" $word "* ]] && skip=$word
            continue
        fi
        if [[ -n $kinds ]]; then
            count=$((count + 1))
            continue
        fi
        path="${path:+$path }$word"
        case "$path" in
            # CASES
        esac
    done
    # The value of an option.
    if [[ -n $skip && $named == *" $skip="* ]]; then
        kinds=${named#*" $skip="}
        kinds=${kinds%%" "*}
        echo "${kinds//,/ }"
    elif [[ -z $skip && -n $kinds ]] && [[ -n $many || $count -eq 0 ]]; then
        echo "$kinds"
    fi
}

# The directories that these words name: each root has names of its own. They go to the array `directories`.
_xebec_directories() {
    local option= word
    for word in "$@"; do
        if [[ $word == --root=* || $word == --run=* ]]; then
            option=${word%%=*}
            word=${word#*=}
        elif [[ -n $option ]]; then
            # Of a word of its own, the shell expands it.
            word=${word/#~\//$HOME/}
        fi
        if [[ -n $option ]]; then
            directories+=("$option" "$word")
            option=
        elif [[ $word == --root || $word == --run ]]; then
            option=$word
        fi
    done
}

_xebec_with_names() {
    _xebec "$@"
    local line=${COMP_LINE:0:COMP_POINT} cur= kinds breaks cut= names words directories=()
    read -ra words <<< "$line"
    if [[ $line != *[[:space:]] ]]; then
        cur=${words[-1]}
        unset 'words[-1]'
    fi
    [[ $cur == -* ]] && return
    kinds=$(_xebec_kinds "${words[@]:1}")
    [[ -z $kinds ]] && return
    _xebec_directories "${words[@]:1}"
    # Of the word, bash replaces what follows the last of these.
    breaks=${COMP_WORDBREAKS//[^:=@]/}
    [[ -n $breaks && $cur == *["$breaks"]* ]] && cut=${cur%"${cur##*["$breaks"]}"}
    # The kinds are words of their own; files are none that the program knows.
    mapfile -t names < <("$1" "${directories[@]}" complete ${kinds/files/} -- "$cur" 2>/dev/null)
    [[ $kinds == *files* ]] && mapfile -t -O "${#names[@]}" names < <(compgen -f -- "$cur")
    COMPREPLY=("${names[@]#"$cut"}")
}

complete -F _xebec_with_names -o bashdefault -o default xebec
