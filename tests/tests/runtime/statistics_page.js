// Returns what is wrong with the appearance of the page, as lines of text.
(() => {
  const wrong = [], root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    const wide = [...document.querySelectorAll('body *')].filter(one => one.getBoundingClientRect().right > root.clientWidth + 1);
    wrong.push(`${root.scrollWidth} pixels wide: ` + wide.slice(0, 3).map(one => one.outerHTML.slice(0, 80)).join(' '));
  }
  // Chromium writes mixed colors as `color(srgb …)`, with parts from 0 to 1.
  const parse = text => {
    const parts = text.match(/[\d.e-]+/g).map(Number), scale = text.startsWith('color(') ? 255 : 1;
    return [parts[0] * scale, parts[1] * scale, parts[2] * scale, parts.length > 3 ? parts[3] : 1];
  };
  const over = (top, below) => [0, 1, 2].map(at => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
  const behind = one => {
    const layers = [];
    for (let at = one; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const light = color => {
    const [r, g, b] = color.slice(0, 3).map(part => (part /= 255) <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement, style = getComputedStyle(one);
    if (!walker.currentNode.nodeValue.trim() || !one.checkVisibility() || ['SCRIPT', 'OPTION'].includes(one.tagName)) continue;
    texts++;
    const below = behind(one), [a, b] = [light(over(parse(style.color), below)), light(below)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), size = parseFloat(style.fontSize);
    const large = size >= 24 || size >= 18.66 && style.fontWeight >= 700;
    if (ratio < (large ? 3 : 4.5)) wrong.push(`contrast ${ratio.toFixed(2)}: ${one.outerHTML.slice(0, 120)}`);
  }
  if (texts < 50) wrong.push(`only ${texts} texts`);
  return wrong.join('\n');
})()
