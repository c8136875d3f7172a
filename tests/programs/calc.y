/* A calculator's grammar with precedences and an error rule. */
%token NUM NAME
%right '='
%left '+' '-'
%left '*' '/' '%'
%right '^'
%precedence NEG
%{
int yylex(void);
void yyerror(const char *);
%}
%%
input: %empty | input line ;
line: '\n' | expr '\n' | error '\n' ;
expr: NUM | NAME | NAME '=' expr { $$ = $3; } | expr '+' expr { $$ = $1 + $3; }
	| expr '-' expr { $$ = $1 - $3; } | expr '*' expr { $$ = $1 * $3; }
	| expr '/' expr { $$ = $1 / $3; } | expr '%' expr { $$ = $1 % $3; }
	| '-' expr %prec NEG { $$ = -$2; } | expr '^' expr { $$ = $1; }
	| '(' expr ')' { $$ = $2; } | NAME '(' args ')' { $$ = 0; } ;
args: %empty | list ;
list: expr | list ',' expr ;
%%
